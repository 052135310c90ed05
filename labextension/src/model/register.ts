/** Registered models as text, with the same wording as `kernel_backend/text/register.py`, and who may change them. */

import type { Model, ModelChange, ModelVersion, Self } from '../api/types';

/** Return the name by which a user addresses a model: `memes`, or `vision/memes` for one of a group. */
export function modelTitle({ owner, name }: Model, me: string): string {
  return owner === me ? name : `${owner}/${name}`;
}

/** Return the aliases that name a version, with whether they are protected. */
export function aliasesOf({ aliases, protected: kept }: Model, version?: ModelVersion): string[] {
  return Object.entries(aliases)
    .filter(([, number]) => number === version?.version)
    .map(([alias]) => (kept.includes(alias) ? `${alias} (protected)` : alias));
}

/** Return what a change of a model did: `production 1 -> 2`. */
export function changeText({ act, alias, before, version }: ModelChange): string {
  switch (act) {
    case 'register':
    case 'remove':
      return `version ${version} ${act === 'register' ? 'registered' : 'removed'}`;
    case 'set':
    case 'unset':
      return `${alias} ${before ?? 'unset'} -> ${version ?? 'unset'}`;
    default:
      return `${alias} ${act === 'protect' ? 'protected' : 'not protected any more'}`;
  }
}

/** Return whether a user may move the aliases of a model, as far as none is protected. */
export function mayChange({ owner }: Model, { name, groups, admin, submits }: Self['person']): boolean {
  return submits && (admin || owner === name || groups.includes(owner));
}
