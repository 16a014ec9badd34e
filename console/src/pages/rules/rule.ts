import type { Schemas } from '../../api/client';
import { measured } from '../../lib/format';
import { t } from '../../lib/i18n.svelte';

export const OPERATORS: [Schemas['Operator'], string][] = [['gt', '>'], ['gte', '≥'], ['lt', '<'], ['lte', '≤'], ['eq', '='], ['between', ''], ['not_between', '']];
export const EVENT_TYPES: Schemas['RuleWebhookEvent'][] = ['sensor.threshold_exceeded', 'sensor.reading', 'experiment.started', 'experiment.stopped', 'system.health_changed'];

export interface Draft {
  name: string;
  event_public_id: string;
  operator: Schemas['Operator'];
  threshold: number;
  threshold_high: number | null;
  action_type: Schemas['ActionType'];
  webhook_event_type: Schemas['RuleWebhookEvent'] | null;
  cooldown_seconds: number;
  enabled: boolean;
  alarm: boolean;
  severity: Schemas['Severity'] | null;
  for_seconds: number | null;
  keep_firing_seconds: number | null;
  clear_threshold: number | null;
  no_data_seconds: number | null;
  rate_window_seconds: number | null;
  contact_ids: string[];
  summary: string | null;
  remind_seconds: number | null;
  escalate_seconds: number | null;
  escalation_contact_ids: string[];
}

/** The settings of a rule without alarms. */
const NO_ALARM = {
  severity: null, for_seconds: null, keep_firing_seconds: null, clear_threshold: null, no_data_seconds: null, rate_window_seconds: null,
  contact_ids: [] as string[], summary: null, remind_seconds: null, escalate_seconds: null, escalation_contact_ids: [] as string[],
};

export const NEW: Draft = {
  name: '', event_public_id: '', operator: 'gt', threshold: Number.NaN, threshold_high: null, action_type: 'log', webhook_event_type: null,
  cooldown_seconds: 60, enabled: true, alarm: false, ...NO_ALARM,
};

export function isRange(operator: string): boolean {
  return operator === 'between' || operator === 'not_between';
}

/** Whether an alarm on this condition may end at another threshold. */
export function hasEnd(operator: string): boolean {
  return ['gt', 'gte', 'lt', 'lte'].includes(operator);
}

/** The condition in words: `> 200 °C`. */
export function condition(rule: Pick<Draft, 'operator' | 'threshold'> & { threshold_high?: number | null }, unit = ''): string {
  const low = measured(rule.threshold);
  const high = measured(rule.threshold_high ?? 0);
  const text =
    rule.operator === 'between' ? t('rules.between', { low, high })
    : rule.operator === 'not_between' ? t('rules.not_between', { low, high })
    : `${OPERATORS.find(([name]) => name === rule.operator)?.[1] ?? rule.operator} ${low}`;
  return unit ? `${text} ${unit}` : text;
}

export function draftOf(rule: Schemas['RuleOut']): Draft {
  return {
    name: rule.name, event_public_id: rule.event_public_id, operator: rule.operator, threshold: rule.threshold,
    threshold_high: rule.threshold_high ?? null, action_type: rule.action_type, webhook_event_type: (rule.webhook_event_type ?? null) as Draft['webhook_event_type'],
    cooldown_seconds: rule.cooldown_seconds, enabled: rule.enabled, alarm: rule.alarm, severity: rule.severity ?? null,
    for_seconds: rule.for_seconds ?? null, keep_firing_seconds: rule.keep_firing_seconds ?? null, clear_threshold: rule.clear_threshold ?? null,
    no_data_seconds: rule.no_data_seconds ?? null, rate_window_seconds: rule.rate_window_seconds ?? null,
    contact_ids: [...rule.contact_ids], summary: rule.summary ?? null, remind_seconds: rule.remind_seconds ?? null,
    escalate_seconds: rule.escalate_seconds ?? null, escalation_contact_ids: [...rule.escalation_contact_ids],
  };
}

/** The request body: only the fields that the operator and the action use. */
export function bodyOf(draft: Draft): Draft {
  return {
    ...draft,
    threshold_high: isRange(draft.operator) ? (draft.threshold_high ?? draft.threshold) : null,
    webhook_event_type: draft.action_type === 'webhook' ? (draft.webhook_event_type ?? EVENT_TYPES[0] ?? null) : null,
    summary: draft.summary?.trim() || null,
    ...(draft.alarm ? {} : NO_ALARM),
    ...(draft.alarm && !hasEnd(draft.operator) ? { clear_threshold: null } : {}),
  };
}
