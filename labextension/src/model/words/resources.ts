/** The words of `kernel_backend/model/resources.py` as they look in JSON. */

export interface Share {
  node: string;
  kind: string;
  address: string;
  slots: number[];
}
