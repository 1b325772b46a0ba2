// Package chart draws in SVG. It is pure: a picture follows from its arguments, and holds no script and no reference to
// anything.
package chart
