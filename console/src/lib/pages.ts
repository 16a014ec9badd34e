import type { Component } from 'svelte';
import type { IconName } from '../ui/Icon.svelte';
import type { TextKey } from './i18n.svelte';

export interface Section {
  /** First part of the path; empty for the overview. */
  path: string;
  text: TextKey;
  icon: IconName;
  /** The letter after `g`. */
  letter: string;
  /** The lowest role that is offered it. */
  role: 'viewer' | 'operator' | 'admin';
  /** Whether some of its pages are for every role: they say themselves which are not. */
  isShared?: true;
  load: () => Promise<{ default: Component }>;
}

export const sections: Section[] = [
  { path: '', text: 'nav.overview', icon: 'overview', letter: 'o', role: 'viewer', load: () => import('../pages/overview/Overview.svelte') },
  { path: 'files', text: 'nav.files', icon: 'files', letter: 'f', role: 'viewer', load: () => import('../pages/files/Files.svelte') },
  { path: 'sensors', text: 'nav.sensors', icon: 'sensors', letter: 's', role: 'viewer', load: () => import('../pages/sensors/Sensors.svelte') },
  { path: 'dashboards', text: 'nav.dashboards', icon: 'dashboards', letter: 'd', role: 'viewer', load: () => import('../pages/dashboards/Dashboards.svelte') },
  { path: 'alarms', text: 'nav.alarms', icon: 'alert', letter: 'm', role: 'viewer', load: () => import('../pages/alarms/Alarms.svelte') },
  { path: 'rules', text: 'nav.rules', icon: 'rules', letter: 'r', role: 'admin', load: () => import('../pages/rules/Rules.svelte') },
  { path: 'contacts', text: 'nav.contacts', icon: 'bell', letter: 'n', role: 'admin', load: () => import('../pages/contacts/Contacts.svelte') },
  { path: 'webhooks', text: 'nav.webhooks', icon: 'webhooks', letter: 'w', role: 'admin', load: () => import('../pages/webhooks/Webhooks.svelte') },
  { path: 'documents', text: 'nav.documents', icon: 'documents', letter: 'c', role: 'viewer', load: () => import('../pages/documents/Documents.svelte') },
  { path: 'fleet', text: 'nav.fleet', icon: 'fleet', letter: 'l', role: 'viewer', load: () => import('../pages/fleet/Fleet.svelte') },
  { path: 'admin', text: 'nav.admin', icon: 'admin', letter: 'a', role: 'admin', isShared: true, load: () => import('../pages/admin/Admin.svelte') },
];
