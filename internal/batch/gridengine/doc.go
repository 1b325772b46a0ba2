// Package gridengine drives Grid Engine (Son of Grid Engine 8.1, and those of its kind with the same qconf) for the
// server, and knows how it hands jobs over to grange exec. Package setup below it has what a site configures. It runs
// qconf and its sisters through internal/program, and nothing else.
package gridengine
