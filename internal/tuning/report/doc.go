// Package report writes findings as a table, as SARIF and as a page that needs nothing else.
package report
