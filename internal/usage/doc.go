// Package usage is what records of usage mean: months, scores, and the messages of those who collect them from sites.
// It is pure.
package usage
