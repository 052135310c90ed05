/** The words of `kernel_backend/model/people.py` as they look in JSON. */

/** Who asks, and what they may. */
export interface Person {
  name: string;
  groups: string[];
  admin: boolean;
  submits: boolean;
}
