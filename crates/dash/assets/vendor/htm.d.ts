declare const htm: { bind(h: any): any };
export default htm;
