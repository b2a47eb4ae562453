// Elements, and how a part of the page becomes another without losing focus, selection or what a person has opened.
// Text becomes text nodes alone: nothing that a peer says is ever markup.

const SVG = 'http://www.w3.org/2000/svg';

// h('td.number', {title: 'x'}, 'text', child, [children]); an attribute that is null, undefined or false is left out.
export function h(tag, attributes, ...children) {
  return build((name) => document.createElement(name), tag, attributes, children);
}

export function svg(tag, attributes, ...children) {
  return build((name) => document.createElementNS(SVG, name), tag, attributes, children);
}

function build(create, tag, attributes, children) {
  const [name, ...classes] = tag.split('.');
  const element = create(name);
  if (classes.length > 0) element.setAttribute('class', classes.join(' '));
  for (const [key, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    element.setAttribute(key, value === true ? '' : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

// A sentence for people, `what is typed` in it as code.
export function prose(text) {
  return text.split('`').map((part, i) => (i % 2 === 1 ? h('code', null, part) : part));
}

// Makes the children of `container` what `wanted` is. Elements with the same data-key, or else in the same place, stay.
export function show(container, ...wanted) {
  const target = container.cloneNode(false);
  target.append(...wanted.flat(Infinity).filter((child) => child));
  morphChildren(container, target);
}

function morphChildren(from, to) {
  const keyed = new Map();
  for (const child of from.children) if (child.dataset?.key) keyed.set(child.dataset.key, child);
  let at = from.firstChild;
  for (const wanted of [...to.childNodes]) {
    const kept = wanted.dataset?.key ? keyed.get(wanted.dataset.key) : undefined;
    if (kept && kept !== at) from.insertBefore(kept, at);
    const current = kept ?? at;
    if (current && isAlike(current, wanted)) {
      morph(current, wanted);
      at = current.nextSibling;
    } else {
      from.insertBefore(wanted, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function isAlike(a, b) {
  return a.nodeType === b.nodeType && a.nodeName === b.nodeName && a.dataset?.key === b.dataset?.key;
}

function morph(from, to) {
  if (from.nodeType !== Node.ELEMENT_NODE) {
    if (from.data !== to.data) from.data = to.data;
    return;
  }
  for (const { name } of [...from.attributes]) {
    if (name !== 'open' && !to.hasAttribute(name)) from.removeAttribute(name);
  }
  for (const { name, value } of to.attributes) {
    if (from.getAttribute(name) !== value) from.setAttribute(name, value);
  }
  morphChildren(from, to);
}
