/** What the service sends: the types of its OpenAPI document, and names for parts of them. */

import type * as generated from './generated';

export type * from './generated';

/** Without what the service adds for people who read the JSON: a message changes none of it. */
export type Overview = Omit<generated.Overview, 'id' | 'state' | 'name'>;

export type Kind = generated.StoredReport['kind'];
export type Metrics = generated.StoredReport['metrics'];
export type Num = Metrics[string]; // what is not finite travels as text
export type Params = generated.Trial['params'];
export type Value = Params[string];

type Read<Body> = { get: { responses: { 200: { content: { 'application/json': Body } } } } };

/** The routes that answer a GET with JSON. */
export type ReadRoute = {
  [Route in keyof generated.paths]: generated.paths[Route] extends Read<unknown> ? Route : never;
}[keyof generated.paths];

/** What a GET of a route answers. */
export type Answer<Route extends ReadRoute> = generated.paths[Route] extends Read<infer Body> ? Body : never;
