/** A value of a field: text, or bytes if it is not UTF-8. */
export type Value = string | Buffer;

/** A message of a stream. A test can make one: `new Message({ amount: "17" })`. */
export class Message {
  constructor(
    fields: Record<string, Value | Value[]>,
    about?: {
      id?: string;
      stream?: string;
      group?: string;
      attempt?: number;
      key?: Value;
      partition?: number;
      fence?: number;
      traceparent?: string;
      tracestate?: string;
    },
  );
  /** The id of the entry. */
  readonly id: string;
  /** The stream from which it was read. */
  readonly stream: string;
  /** The group for which it was read. */
  readonly group: string;
  /** 1 for the first attempt. */
  readonly attempt: number;
  /** The key by which a worker with `--order-by` orders messages. Undefined if the message has none. */
  readonly key: Value | undefined;
  /** The number of the partition from which it was read. Undefined if the stream has no partitions. */
  readonly partition: number | undefined;
  /** The number of the worker as the owner of the stream, greater than that of every earlier owner. Undefined if no worker owns it. */
  readonly fence: number | undefined;
  /** All fields. The value of a name that occurs more than once is an array. */
  readonly fields: Record<string, Value | Value[]>;
  /**
   * The trace of the message and the span of this attempt, to pass on to what the handler calls (W3C Trace Context).
   * Undefined if the message belongs to no trace.
   */
  readonly traceparent: string | undefined;
  readonly tracestate: string | undefined;
  /**
   * Aborted when the worker no longer needs the outcome: the message exceeded `--timeout`, or the worker lost it.
   * Pass it to fetch() and others.
   */
  readonly signal: AbortSignal;
  /** Whether the message has this field. */
  has(name: string): boolean;
  /** Returns all values of a field. Empty if the message does not have it. */
  all(name: string): Value[];
  /** Returns the text of a field, or undefined if the message does not have it. Throws if it is not text. */
  text(name: string): string | undefined;
  /** Returns the first value of a field as bytes, or undefined if the message does not have it. */
  bytes(name: string): Buffer | undefined;
}

/** What happens to a message. A handler returns it or throws it; returning nothing means Ack. */
export abstract class Outcome extends Error {}

/** The message is done. */
export class Ack extends Outcome {
  constructor();
}

/** The message is not for this handler. The worker acknowledges it and counts it as skipped. */
export class Skip extends Outcome {
  constructor();
}

/** The message can never succeed. The worker moves it to the dead letters. */
export class Reject extends Outcome {
  constructor(error?: string | Error);
}

/** The worker should deliver the message again: after this time, or after its back-off. */
export class Retry extends Outcome {
  constructor(error?: string | Error, options?: { afterMs?: number });
  readonly afterMs: number | undefined;
}

type Result = void | undefined | null | Outcome | typeof Ack | typeof Skip | typeof Reject | typeof Retry;

/** Handles a message. An error means a retry. */
export type Handler = (message: Message) => Result | Promise<Result>;

/** Registers the handler of all streams that have no handler of their own. */
export function handler<H extends Handler>(handler: H): H;
/** Registers the handler of these streams. */
export function handler<H extends Handler>(streams: string | string[], handler: H): H;

/** Registers a function that each process runs before its first message. */
export function onStart(hook: () => void | Promise<void>): void;
/** Registers a function that each process runs when it ends. */
export function onStop(hook: () => void | Promise<void>): void;

/** Returns the message that the calling code handles, for example for logging. */
export function currentMessage(): Message | undefined;

/** Options of `millstream work`, in camel case. An array repeats an option; true is an option without a value. */
export interface Options {
  /** Path of the program. Default: the environment variable MILLSTREAM_BIN, or `millstream` on the PATH. */
  millstream?: string;
  /** Options of the command line, which replace those of run(). Default: `process.argv.slice(2)`. */
  argv?: string[];
  /** Streams to read. Default: those of the handlers. */
  stream?: string | string[];
  /** Consumer group. */
  group?: string;
  /** URL of the store. */
  url?: string;
  /** Number of messages handled at the same time, in all processes. Default: 64. */
  concurrency?: number;
  /** Number of messages that one process has at a time. Default: 64. */
  pipeline?: number;
  /** Maximum time to handle a message, such as "30s". */
  timeout?: string;
  [option: string]: string | number | boolean | null | undefined | Array<string | number>;
}

/** Handles messages with the registered handlers until the worker ends, and ends the process. */
export function run(options?: Options): void;
