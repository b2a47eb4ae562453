#include "kernels/reference/onebit_adam.h"

#include <algorithm>
#include <cmath>

namespace fluvial::kernels::reference {
namespace {

using Vector = OnebitAdam::Vector;

// C(p): each block's mean magnitude with the signs of p, zero counting as positive.
Vector compress(const Vector& p, std::size_t block) {
  Vector sent(p.size());
  for (std::size_t first = 0; first < p.size(); first += block) {
    const std::size_t end = std::min(first + block, p.size());
    double sum = 0;
    for (std::size_t i = first; i < end; ++i) sum += std::fabs(p[i]);
    for (std::size_t i = first; i < end; ++i) sent[i] = (p[i] < 0 ? -1 : 1) * sum / static_cast<double>(end - first);
  }
  return sent;
}

// The part of vector + residual that is sent; the rest stays in the residual.
Vector send(const Vector& vector, Vector* residual, std::size_t block) {
  Vector p(vector.size());
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = vector[i] + (*residual)[i];
  const Vector sent = compress(p, block);
  for (std::size_t i = 0; i < p.size(); ++i) (*residual)[i] = p[i] - sent[i];
  return sent;
}

Vector mean_of(const std::vector<Vector>& vectors, const std::vector<double>& weights) {
  Vector mean(vectors[0].size(), 0.0);
  double total = 0;
  for (std::size_t k = 0; k < vectors.size(); ++k) {
    total += weights[k];
    for (std::size_t i = 0; i < mean.size(); ++i) mean[i] += weights[k] * vectors[k][i];
  }
  for (double& value : mean) value /= total;
  return mean;
}

}  // namespace

OnebitAdam::OnebitAdam(Vector start, std::size_t sites)
    : model(std::move(start)),
      momentum(model.size(), 0.0),
      variance(model.size(), 0.0),
      site_residual(sites, Vector(model.size(), 0.0)),
      server_residual(model.size(), 0.0) {}

void OnebitAdam::step(double lr, const std::vector<Vector>& updates, const std::vector<double>& weights) {
  const bool warming_up = round < freeze_rounds;
  if (warming_up) {
    const Vector mean = mean_of(updates, weights);
    for (std::size_t i = 0; i < mean.size(); ++i) {
      momentum[i] = beta1 * momentum[i] + (1 - beta1) * mean[i];
      variance[i] = beta2 * variance[i] + (1 - beta2) * mean[i] * mean[i];
    }
  } else {
    std::vector<Vector> sent;
    for (std::size_t k = 0; k < updates.size(); ++k) {
      Vector local(momentum.size());
      for (std::size_t i = 0; i < local.size(); ++i) local[i] = beta1 * momentum[i] + (1 - beta1) * updates[k][i];
      sent.push_back(send(local, &site_residual[k], block_values));
    }
    momentum = send(mean_of(sent, weights), &server_residual, block_values);
  }
  for (std::size_t i = 0; i < model.size(); ++i) {
    if (variance[i] > 0) model[i] -= lr * momentum[i] / (std::sqrt(variance[i]) + tau);
  }
  if (++round == freeze_rounds) momentum = send(momentum, &server_residual, block_values);
}

}  // namespace fluvial::kernels::reference
