// Package chart draws in SVG.
package chart
