// Numbers, bytes and times as a person reads them. Between a number and its unit no line breaks.

const NB = '\u00a0';

export function bytes(count) {
  if (!Number.isFinite(count)) return '–';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let unit = 0;
  while (count >= 999.5 && unit < units.length - 1) {
    count /= 1024;
    unit += 1;
  }
  return `${unit === 0 || count >= 99.5 ? Math.round(count) : count.toPrecision(2)}${NB}${units[unit]}`;
}

export function seconds(value) {
  if (!Number.isFinite(value)) return '–';
  if (value < 0.0995) return `${Math.round(value * 1000)}${NB}ms`;
  if (value < 9.95) return `${value.toFixed(1)}${NB}s`;
  if (value < 99.5) return `${Math.round(value)}${NB}s`;
  if (value < 5970) return `${Math.round(value / 60)}${NB}min`;
  if (value < 172_800) return `${Math.round(value / 3600)}${NB}h`;
  return `${Math.round(value / 86_400)}${NB}days`;
}

// A time on an axis up to `most`, with the digits that tell its quarters apart.
export function axisTime(value, most) {
  const [unit, size] = most < 1 ? ['ms', 0.001] : most < 99.5 ? ['s', 1] : most < 5970 ? ['min', 60] : ['h', 3600];
  const step = most / 4 / size;
  return `${Number((value / size).toFixed(step >= 10 ? 0 : step >= 1 ? 1 : 2))}${NB}${unit}`;
}

// A metric: four digits that matter.
export function metric(value) {
  if (!Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.0001 || size >= 1e7)) return value.toExponential(2);
  if (Number.isInteger(value)) return value.toLocaleString('en');
  return value.toPrecision(size >= 1000 ? 6 : 4).replace(/(\.\d*?)0+$/, '$1').replace(/\.$/, '');
}

export function count(number, one, many = `${one}s`) {
  return `${number} ${number === 1 ? one : many}`;
}

// "03:12:40 UTC", with the day when that is not within the last 20 hours: as the coordinator's own reasons have it.
export function clock(at, now = Date.now()) {
  const date = new Date(at);
  if (Number.isNaN(date.getTime())) return '';
  const text = date.toISOString();
  return `${now - date.getTime() < 72_000_000 ? '' : `${text.slice(0, 10)} `}${text.slice(11, 19)}${NB}UTC`;
}

// "4 min ago", "in 12 days".
export function away(at, now = Date.now()) {
  const time = new Date(at).getTime();
  if (Number.isNaN(time)) return '';
  const apart = (time - now) / 1000;
  if (Math.abs(apart) < 1) return 'now';
  return apart < 0 ? `${seconds(Math.round(-apart))} ago` : `in ${seconds(Math.round(apart))}`;
}

export function percent(part) {
  return Number.isFinite(part) ? `${Math.round(100 * part)}${NB}%` : '–';
}
