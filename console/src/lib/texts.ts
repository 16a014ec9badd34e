/** All texts of the console, by their keys. */
import { plant } from './texts/plant';
import { services } from './texts/services';
import { shared } from './texts/shared';

export const texts = { ...shared, ...plant, ...services };
