/** What the tests use of aws4, which has no types. */
declare module 'aws4' {
  export interface Credentials {
    accessKeyId: string
    secretAccessKey: string
    sessionToken?: string
  }
  export interface Request {
    service: string
    region: string
    method: string
    host: string
    path: string
    headers: Record<string, string>
    body: string | Buffer
    extraHeadersToIgnore?: Record<string, boolean>
  }
  const aws4: { sign(request: Request, credentials: Credentials): { headers?: Record<string, string> } }
  export default aws4
}
