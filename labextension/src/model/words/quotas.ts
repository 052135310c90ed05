/** The words of `kernel_backend/model/quotas.py` as they look in JSON. */

export interface SlotHours {
  hours: number;
  window: number;
}

export interface Quota {
  weight: number;
  guarantee: number;
  limit: number | null;
  slot_hours: SlotHours | null;
  max_slots_per_trial: number | null;
  priority: number;
}

export interface Use {
  held: number;
  decayed: number;
  window: number | null;
}
