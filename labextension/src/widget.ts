/** The view as an anywidget, for frontends without the JupyterLab extension; bundled with its style. */

import 'uplot/dist/uPlot.min.css';
import '../style/view.css';
import type { AnyModel, RenderProps } from '@anywidget/types';

import type { Saved } from './model/saved';
import { CommSource } from './service/comm';
import { Watch } from './service/watch';
import { ExperimentView } from './view/view';

interface State {
  number: number;
  saved: Saved;
}

/** Draw the experiment of a model into a node; returns a function that removes it. */
function render({ model, el }: { model: AnyModel<State>; el: HTMLElement }): () => void {
  const number = model.get('number');
  const source = new CommSource(model, number);
  const watch = new Watch(source, number, model.get('saved'));
  const view = new ExperimentView(el, watch);
  const adopt = (): void => watch.adopt(model.get('saved'));
  model.on('change:saved', adopt);
  watch.start();
  return () => {
    model.off('change:saved', adopt);
    view.dispose();
    watch.dispose();
    source.dispose();
  };
}

export default { render } satisfies { render: (props: RenderProps<State>) => () => void };
