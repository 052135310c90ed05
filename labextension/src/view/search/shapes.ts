/** Drawings as plain data: charts return shapes, and only `paint` changes the page. */

const SVG = 'http://www.w3.org/2000/svg';

export interface Shape {
  readonly tag: 'circle' | 'line' | 'path' | 'rect' | 'text';
  readonly props: Readonly<Record<string, string | number>>;
  readonly style?: Readonly<Partial<Record<'fill' | 'stroke', string>>>;
  readonly text?: string;
  readonly title?: string; // tooltip
}

/** Make `svg` show exactly these shapes. */
export function paint(svg: SVGSVGElement, shapes: readonly Shape[]): void {
  svg.replaceChildren(...shapes.map(made));
}

/** Return an SVG path through points, interrupted at null. */
export function pathOf(points: readonly (readonly [number, number] | null)[]): string {
  let pen = 'M';
  const parts: string[] = [];
  for (const point of points) {
    if (point) {
      parts.push(`${pen}${point[0].toFixed(1)} ${point[1].toFixed(1)}`);
    }
    pen = point ? 'L' : 'M';
  }
  return parts.join('');
}

export function text(x: number, y: number, said: string, props: Readonly<Record<string, string | number>> = {}): Shape {
  return { tag: 'text', props: { x: round(x), y: round(y), ...props }, text: said };
}

/** Round pixels to a visible precision. */
export function round(pixels: number): number {
  return Math.round(pixels * 10) / 10;
}

function made(shape: Shape): SVGElement {
  const node = document.createElementNS(SVG, shape.tag);
  for (const [name, value] of Object.entries(shape.props)) {
    node.setAttribute(name, String(value));
  }
  Object.assign(node.style, shape.style); // no attribute, which a page's security policy may forbid
  if (shape.text !== undefined) {
    node.textContent = shape.text;
  }
  if (shape.title !== undefined) {
    node.appendChild(document.createElementNS(SVG, 'title')).textContent = shape.title;
  }
  return node;
}
