// Package pbs drives OpenPBS for the server, and knows how PBS hands jobs over to grange exec. Package setup below it
// has what a site configures.
package pbs
