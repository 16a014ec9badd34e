/** All texts of the console, by their keys. */
import { pages } from './texts/pages';
import { shared } from './texts/shared';

export const texts = { ...shared, ...pages };
