package api

import (
	"context"
	"net/url"
	"time"
)

// WorkerRequest asks an agent for a VM that joins a batch system as a node. Asking again for a young one with the same
// name gives that one.
type WorkerRequest struct {
	Name   string `json:"name"` // of the node: the VM's host name
	Image  string `json:"image,omitempty"`
	Shape  string `json:"shape,omitempty"`
	CPUs   int    `json:"cpus,omitempty"`   // vCPUs; 0: as the shape says
	Memory uint64 `json:"memory,omitempty"` // bytes; 0: as the shape says
	// Conf is what a dynamic node tells Slurm of itself, as "CPUs=2 RealMemory=1500 Feature=sl9"; empty: slurm.conf
	// knows the node.
	Conf string `json:"conf,omitempty"`
	Warm bool   `json:"warm,omitempty"` // made before anybody asked for it
	// WaitTimeout is how many seconds to wait for room, at most 60.
	WaitTimeout int `json:"patience,omitempty"`
	// KeepYounger is how many seconds old a VM of the same name may be to be the answer; an older one is what somebody
	// forgot to end, and is ended first. 0: any is the answer.
	KeepYounger int `json:"keep_younger,omitempty"`
}

// Worker is one VM that is, or soon will be, a node of a batch system.
type Worker struct {
	Name    string    `json:"name"`
	State   string    `json:"state"`
	VM      string    `json:"vm"`
	Image   string    `json:"image"`
	Digest  string    `json:"digest,omitempty"`
	Address string    `json:"address"` // with the length of the network's prefix
	MAC     string    `json:"mac"`
	Conf    string    `json:"conf,omitempty"`
	Warm    bool      `json:"warm,omitempty"`
	CPUs    int       `json:"cpus"`
	Memory  uint64    `json:"memory"`
	Created time.Time `json:"created"`
	Cause   string    `json:"cause,omitempty"`   // why it ended, for people
	Ordered bool      `json:"ordered,omitempty"` // it ended because somebody asked for that
	Refused bool      `json:"refused,omitempty"` // it never had a VM: its image or its host backs off
	// its VM runs, and nobody has said yet that the batch system has its node
	Unseen bool `json:"unseen,omitempty"`
}

// States of a worker.
const (
	WorkerStarting = "starting" // the VM waits for room, or boots
	WorkerUp       = "up"       // the batch system's daemon was started in it
	WorkerEnded    = "ended"    // the VM has gone
)

// WorkerEvent is one line of the answer to a request that follows workers: first each worker there is, then one with no
// worker, then each change.
type WorkerEvent struct {
	Worker *Worker `json:"worker,omitempty"` // nil: all there is was told
}

// StartWorker makes a worker and returns when it has its room; its VM then boots.
func (c *Client) StartWorker(ctx context.Context, r WorkerRequest) (Worker, error) {
	return call[Worker](ctx, c, "POST", "/v1/workers", r)
}

// StopWorker ends a worker's VM and returns when it is gone. Without such a worker the answer's state is WorkerEnded,
// too.
func (c *Client) StopWorker(ctx context.Context, name string) (Worker, error) {
	return call[Worker](ctx, c, "DELETE", "/v1/workers/"+url.PathEscape(name), nil)
}

// FailWorker is StopWorker for one whose node did not come in time: its image backs off when that happens again and
// again.
func (c *Client) FailWorker(ctx context.Context, name string) (Worker, error) {
	return call[Worker](ctx, c, "DELETE", "/v1/workers/"+url.PathEscape(name)+"?late=true", nil)
}

// WorkerCame reports that the batch system has the worker's node.
func (c *Client) WorkerCame(ctx context.Context, name string) (Worker, error) {
	return call[Worker](ctx, c, "POST", "/v1/workers/"+url.PathEscape(name)+"/up", nil)
}

// Workers lists the workers of the host.
func (c *Client) Workers(ctx context.Context) ([]Worker, error) {
	return call[[]Worker](ctx, c, "GET", "/v1/workers", nil)
}

// FollowWorkers calls each with every WorkerEvent until ctx ends, each fails, or the agent does.
func (c *Client) FollowWorkers(ctx context.Context, each func(WorkerEvent) error) error {
	response, err := c.do(ctx, "GET", "/v1/workers?follow=true", nil)
	if err != nil {
		return err
	}
	return lines(response, each)
}
