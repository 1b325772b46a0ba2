// Package archtest holds the picture of docs/architecture.md true: who may import whom, what the documents must say of
// the code, and what no file may be. It is tests only, reads sources and never runs them.
package archtest
