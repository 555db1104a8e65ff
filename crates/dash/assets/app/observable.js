// @ts-check
/** Holds one value that components watch. */

import { useEffect, useState } from './html.js';

/** @template T */
export class Observable {
  /** @param {T} value */
  constructor(value) {
    this.value = value;
    /** @type {Set<(value: T) => void>} */
    this.watchers = new Set();
  }

  /** @param {T} value */
  set(value) {
    if (Object.is(value, this.value)) return;
    this.value = value;
    for (const watcher of [...this.watchers]) watcher(value);
  }

  /** Sets some properties of an object. @param {Partial<T>} changes */
  merge(changes) {
    this.set({ ...this.value, ...changes });
  }

  /** Calls a function for each new value. Returns a function that ends this. @param {(value: T) => void} watcher */
  watch(watcher) {
    this.watchers.add(watcher);
    return () => void this.watchers.delete(watcher);
  }
}

/** Returns the value, and draws the component again for each new one. @template T @param {Observable<T>} observable @returns {T} */
export function useObservable(observable) {
  const [value, setValue] = useState(observable.value);
  useEffect(() => {
    setValue(() => observable.value);
    return observable.watch((next) => setValue(() => next));
  }, [observable]);
  return value;
}
