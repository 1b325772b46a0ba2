package api

import (
	"context"
	"net/url"
	"time"
)

// FileSystemMatch says which mounts are of a file system: all that is set must be so, and a "*" in it stands for any
// text.
type FileSystemMatch struct {
	Source     string `json:"source,omitempty"`
	Type       string `json:"type,omitempty"`
	MountPoint string `json:"mount_point,omitempty"`
}

// FileSystemDrain keeps VMs from starting with directories of a network file system, around its maintenance.
type FileSystemDrain struct {
	Name string `json:"name"`
	// Match is in requests to an agent empty where Name is a source or a mount point.
	Match    FileSystemMatch `json:"match"`
	Reason   string          `json:"reason,omitempty"` // shown to those who wait
	Since    time.Time       `json:"since"`
	Deadline *time.Time      `json:"deadline,omitempty"` // VMs that still have directories of it are ended; nil: never
	Until    *time.Time      `json:"until,omitempty"`    // when it should be over: shown to those who wait
	Fleet    bool            `json:"fleet,omitempty"`    // the server's, which ends it
	// VMs, in answers to administrators, are those that still have directories of it.
	VMs []FileSystemUser `json:"vms,omitempty"`
}

// FileSystemUser is a VM that has directories of a file system.
type FileSystemUser struct {
	Name  string `json:"name"`
	User  string `json:"user"`
	Batch string `json:"batch,omitempty"` // batch system and its job
	Host  string `json:"host,omitempty"`  // in answers of a server
}

const routeFileSystems = "/v1/file-systems/drains"

// FileSystems are the drains of file systems on one agent's host.
type FileSystems struct{ agent *Client }

// FileSystems are those of the agent's host.
func (c *Client) FileSystems() FileSystems { return FileSystems{c} }

// Drain begins a drain on this host, or changes one, and returns who still has directories of the file system:
// draining again asks for the rest.
func (f FileSystems) Drain(ctx context.Context, d FileSystemDrain) (FileSystemDrain, error) {
	return call[FileSystemDrain](ctx, f.agent, "POST", routeFileSystems, d)
}

// Drains lists the drains of this host.
func (f FileSystems) Drains(ctx context.Context) ([]FileSystemDrain, error) {
	return call[[]FileSystemDrain](ctx, f.agent, "GET", routeFileSystems, nil)
}

// Resume ends a drain of this host. Ending what is not is an error.
func (f FileSystems) Resume(ctx context.Context, name string) error {
	path := routeFileSystems + "?" + url.Values{"name": {name}}.Encode()
	_, err := call[FileSystemDrain](ctx, f.agent, "DELETE", path, nil)
	return err
}
