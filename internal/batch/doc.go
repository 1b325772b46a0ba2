// Package batch is what a server, and the agent's policy and breakers, need of a batch system: what is asked of it,
// what its hosts do, what has ended, and a way to keep a host or a slot from its jobs. Each system has a package below;
// none of them places jobs, and this package runs nothing.
package batch
