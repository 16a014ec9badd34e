/** Why a request failed, whichever of the two error formats the interface answered with. */
export class ApiError extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly code: string,
    readonly requestId: string | null,
    readonly fields: Record<string, string>,
  ) {
    super(message);
    this.name = 'ApiError';
  }
}

/** No answer arrived. */
export class OfflineError extends Error {
  constructor() {
    super('the server does not answer');
    this.name = 'OfflineError';
  }
}

interface Body {
  error?: string;
  detail?: string;
  title?: string;
  code?: string;
  errors?: { pointer: string; message: string }[];
}

export function toApiError(response: Response, body: unknown): ApiError {
  const problem = (typeof body === 'object' && body !== null ? body : {}) as Body;
  const text = problem.error ?? problem.detail ?? problem.title ?? `${response.status} ${response.statusText}`;
  const fields = Object.fromEntries((problem.errors ?? []).map(({ pointer, message }) => [pointer.replace(/^\//, ''), message]));
  return new ApiError(response.status, sentence(text), problem.code ?? '', response.headers.get('x-request-id'), fields);
}

/** A message as a sentence. */
export function sentence(text: string): string {
  const trimmed = text.trim();
  const begun = trimmed.charAt(0).toUpperCase() + trimmed.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}
