// Package lsf drives IBM Spectrum LSF for the server, and knows how LSF hands jobs over to grange exec. Package setup
// below it has what a site configures.
package lsf
