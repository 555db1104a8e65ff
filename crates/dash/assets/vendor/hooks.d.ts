// The types of the vendored hooks, as far as the pages use them.
type Setter<T> = (value: T | ((old: T) => T)) => void;
type Effect = () => void | undefined | (() => void);
export function useState<T>(first: T | (() => T)): [T, Setter<T>];
export function useEffect(effect: Effect, inputs?: readonly unknown[]): void;
export function useLayoutEffect(effect: Effect, inputs?: readonly unknown[]): void;
export function useRef<T>(first: T): { current: T };
export function useMemo<T>(make: () => T, inputs?: readonly unknown[]): T;
export function useCallback<T>(callback: T, inputs?: readonly unknown[]): T;
export function useReducer<S, A>(reducer: (state: S, action: A) => S, first: S): [S, (action: A) => void];
export function useContext(context: any): any;
export function useId(): string;
export function useErrorBoundary(callback?: (error: unknown) => void): [unknown, () => void];
