// Package chart draws hosts, in SVG and as text. It is pure: a picture follows from its arguments, and one in SVG holds
// no script and no reference to anything.
package chart
