/** Daylight's icon. */

import { LabIcon } from '@jupyterlab/ui-components';

import sun from '../../style/icons/sun.svg';

export const sunIcon = new LabIcon({ name: 'daylight:sun', svgstr: sun });
