// Package farm holds the words of the farm: its types, their rules and their errors. It imports the standard library
// only and never does input or output.
package farm
