/** Actions of buttons: a failure is shown as a notice, and the views of some types of resources are refreshed either way. */
import { confirmation } from './confirm.svelte';
import { t } from './i18n.svelte';
import { notices } from './notices.svelte';
import { changed } from './query';

export async function act(types: string[], work: () => Promise<unknown>): Promise<void> {
  try {
    await work();
  } catch (error) {
    notices.failed(error);
  }
  await changed(...types);
}

/** The same, after the user has confirmed it. */
export async function confirmAndAct(question: { title: string; text: string; action: string }, types: string[], work: () => Promise<unknown>): Promise<void> {
  if (await confirmation.ask(question.title, question.text, question.action)) await act(types, work);
}

/** Deletes what is called `name`; `text` says what is lost with it. */
export function confirmAndDelete(name: string, text: string, types: string[], work: () => Promise<unknown>): Promise<void> {
  return confirmAndAct({ title: t('confirm.delete', { name }), text, action: t('delete') }, types, work);
}
