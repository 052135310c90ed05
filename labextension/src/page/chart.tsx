/** Chart of the slot use and the limit of a user or group over time. */

import * as React from 'react';
import uPlot from 'uplot';

import type { Account, UseOverTime } from '../api/types';
import { messageOf } from '../service/source';
import { Theme } from '../view/theme';
import type { Cluster } from './cluster';
import { nameOf } from './actions';
import { type Lines, linesOf, SPANS, useText } from './usechart';

const POINTS = 240;
const HEIGHT = 200;
const AGAIN_MS = 30_000;
const HOUR_STEPS = [1, 2, 3, 6, 12].map(hours => hours * 3600);
const DAY_STEPS = [1, 2, 5, 10].map(count => count * 86400);
const HOURS = new Intl.DateTimeFormat('en-GB', { hour: '2-digit', minute: '2-digit' });
const DAYS = new Intl.DateTimeFormat('en-GB', { day: 'numeric', month: 'short' });

interface Props {
  cluster: Cluster;
  account: Pick<Account, 'kind' | 'name'>;
  close: () => void;
}

export function UseChart({ cluster, account, close }: Props): React.JSX.Element {
  const [seconds, setSeconds] = React.useState<number>(SPANS[1][1]);
  const [use, setUse] = React.useState<UseOverTime | null>(null);
  const [wrong, setWrong] = React.useState('');
  const { kind, name } = account;
  React.useEffect(() => {
    let over = false;
    const look = async (): Promise<void> => {
      try {
        const found = await cluster.use({ kind, name }, seconds, POINTS);
        if (!over) {
          setUse(found);
          setWrong('');
        }
      } catch (error) {
        if (!over) {
          setWrong(messageOf(error));
        }
      }
    };
    void look();
    const timer = setInterval(() => {
      if (!document.hidden) {
        void look();
      }
    }, AGAIN_MS);
    return () => {
      over = true;
      clearInterval(timer);
    };
  }, [cluster, kind, name, seconds]);
  return (
    <section className="dl-wide dl-chart" aria-labelledby="dl-chart">
      <div className="dl-bar-above">
        <h2 id="dl-chart">Use of {nameOf(account)}</h2>
        <div className="dl-choices" role="group" aria-label="Span">
          {SPANS.map(([title, span]) => (
            <button
              key={title}
              type="button"
              className="dl-choice-button"
              aria-pressed={span === seconds}
              onClick={() => setSeconds(span)}
            >
              {title}
            </button>
          ))}
        </div>
        <button type="button" className="dl-push dl-end" onClick={close}>
          Close
        </button>
      </div>
      {use && <Drawing use={use} days={seconds > 2 * 86400} />}
      <p className="dl-dim" role="status">
        {wrong || (use ? useText(use) : 'Counting…')}
      </p>
    </section>
  );
}

function Drawing({ use, days }: { use: UseOverTime; days: boolean }): React.JSX.Element {
  const place = React.useRef<HTMLDivElement>(null);
  const words = useText(use);
  React.useEffect(() => {
    const node = place.current;
    if (node === null) {
      return undefined;
    }
    let plot: uPlot | null = null;
    const lines = linesOf(use);
    const draw = (): void => {
      plot?.destroy();
      plot = new uPlot(optionsOf(lines, theme, node.clientWidth, days), dataOf(lines), node);
      plot.ctx.canvas.setAttribute('role', 'img');
      plot.ctx.canvas.setAttribute('aria-label', words);
    };
    const theme = new Theme(node, () => draw());
    const resized = new ResizeObserver(() => plot?.setSize({ width: node.clientWidth, height: HEIGHT }));
    draw();
    resized.observe(node);
    return () => {
      resized.disconnect();
      theme.dispose();
      plot?.destroy();
    };
  }, [use, days, words]);
  return (
    <>
      <div className="dl-plot-place" ref={place} />
      <p className="dl-key" aria-hidden="true">
        <span data-line="held">held</span>
        {use.quota.limit !== null && <span data-line="limit">limit</span>}
        {use.quota.guarantee > 0 && <span data-line="guarantee">guarantee</span>}
      </p>
    </>
  );
}

function dataOf({ at, held, limit, guarantee }: Lines): uPlot.AlignedData {
  return [at, held, limit, guarantee];
}

function optionsOf({ most }: Lines, theme: Theme, width: number, days: boolean): uPlot.Options {
  const plain = { stroke: theme.colour('dim'), font: theme.font(11), ticks: { show: false } };
  const grid = { stroke: theme.colour('grid'), width: 1 };
  const accent = theme.colour('training');
  const stepped = uPlot.paths.stepped?.({ align: 1 });
  const hidden = { points: { show: false } };
  return {
    width,
    height: HEIGHT,
    legend: { show: false },
    cursor: { show: false },
    padding: [8, 12, 0, 0],
    scales: { x: { time: true }, y: { range: [0, most] } },
    axes: [
      {
        ...plain,
        size: 26,
        space: 64,
        incrs: days ? DAY_STEPS : HOUR_STEPS,
        grid: { show: false },
        values: (_, at) => at.map(each => (days ? DAYS : HOURS).format(1000 * each))
      },
      { ...plain, grid, size: 44, incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000] }
    ],
    series: [
      {},
      {
        ...hidden,
        stroke: accent,
        width: 1.5,
        fill: `color-mix(in srgb, ${accent} 18%, transparent)`,
        ...(stepped ? { paths: stepped } : {})
      },
      { ...hidden, stroke: theme.colour('bad'), width: 1.5, dash: [6, 4] },
      { ...hidden, stroke: theme.colour('good'), width: 1.5, dash: [2, 3] }
    ]
  };
}
