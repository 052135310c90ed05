/** The words of `kernel_backend/model/artifacts.py` as they look in JSON. */

export interface Artifact {
  trial: number;
  name: string;
  attempt: number;
  step: number;
  at: number;
  size: number;
  digest: string;
  media: string;
  file: string;
}
