import { untrack } from 'svelte';

/** Does `work` each time that `isOpen` becomes true. Data that arrives later leaves what was typed as it is. */
export function onOpen(isOpen: () => boolean, work: () => void): void {
  let wasOpen = false;
  $effect(() => {
    const open = isOpen();
    if (open && !wasOpen) untrack(work);
    wasOpen = open;
  });
}
