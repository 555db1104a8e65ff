export const h: any, render: any, Component: any, Fragment: any, createContext: any, options: any;
