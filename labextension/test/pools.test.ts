/** Pools that a view offers to move an experiment to. */

import type { PoolStatus } from '../src/api/types';
import { choicesOf } from '../src/model/pools';

function pool(name: string, fields: Partial<PoolStatus> = {}): PoolStatus {
  return {
    name,
    engine: 'slurm',
    settings: null,
    configured: false,
    default: false,
    places: true,
    kinds: ['cpu'],
    nodes: 2,
    slots: 8,
    used: 5,
    waiting: 0,
    problem: '',
    limit: '',
    allocations: [],
    ...fields
  };
}

const POOLS = [pool('local', { default: true }), pool('gpu', { waiting: 2 }), pool('cloud', { places: false })];
const names = (named: string | null): string[] => choicesOf(POOLS, named).map(each => each.name);

test('an experiment can be moved to every pool but its own', () => {
  expect(names('gpu')).toEqual(['local', 'cloud']);
  expect(choicesOf([pool('local', { default: true })], null)).toEqual([]);
});

test('one that names no pool is in the default pool', () => {
  expect(names(null)).toEqual(['gpu', 'cloud']);
});

test('one that names several can be moved to any of them', () => {
  expect(names('gpu,cloud')).toEqual(['local', 'gpu', 'cloud']);
});

test('their free slots are said where Daylight chooses the nodes, and what waits', () => {
  expect(choicesOf(POOLS, 'local').map(each => each.text)).toEqual([
    'gpu: 3 of 8 slots free, 2 waiting',
    'cloud: 8 slots'
  ]);
});

test('a pool that cannot be used is listed with its problem', () => {
  const [choice] = choicesOf([pool('gpu', { problem: 'squeue does not answer' })], null);
  expect(choice).toEqual({ name: 'gpu', text: 'gpu: cannot be used now', problem: 'squeue does not answer' });
});
