/** The words of `kernel_backend/model/servers.py` as they look in JSON. */

/** A notebook server and the slots that it holds. */
export interface Server {
  owner: string;
  group: string;
  name: string;
  pool: string;
  node: string | null;
  slots: number;
  since: number;
  last_activity: number;
}
