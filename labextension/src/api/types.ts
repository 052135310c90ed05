/** Types of the service's answers: those of its OpenAPI document, and names for parts of them. */

import type * as generated from './generated';

export type * from './generated';

/**
 * Overview without the fields that the API adds for human readers of the JSON; messages of the stream do not change
 * these.
 */
export type Overview = Omit<generated.Overview, 'id' | 'state' | 'name'>;

export type Kind = generated.StoredReport['kind'];
export type Metrics = generated.StoredReport['metrics'];
export type Num = Metrics[string]; // NaN and infinity are sent as text
export type Params = generated.Trial['params'];
export type Value = Params[string];

type Read<Body> = { get: { responses: { 200: { content: { 'application/json': Body } } } } };

/** Routes that answer a GET request with JSON. */
export type ReadRoute = {
  [Route in keyof generated.paths]: generated.paths[Route] extends Read<unknown> ? Route : never;
}[keyof generated.paths];

/** Type of the answer to a GET request of a route. */
export type Answer<Route extends ReadRoute> = generated.paths[Route] extends Read<infer Body> ? Body : never;
