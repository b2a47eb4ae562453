"""PyTorch where it sees a GPU."""


def find():
    """torch, or nothing, after it said why."""
    try:
        import torch
    except ImportError:
        print("skipped: no torch")
        return None
    if not torch.cuda.is_available():
        print("skipped: torch sees no CUDA device")
        return None
    return torch
