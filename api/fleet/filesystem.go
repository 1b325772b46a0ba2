package fleet

import (
	"context"
	"net/url"
	"time"

	"github.com/grange-project/grange/api"
)

// FileSystem is a network file system that the site declares, with its clients: a host is one, however many VMs behind
// it have directories of it.
type FileSystem struct {
	Name    string              `json:"name"`
	Match   api.FileSystemMatch `json:"match"`
	Note    string              `json:"note,omitempty"`
	Budget  int                 `json:"budget,omitempty"` // clients that it is made for
	Clients int                 `json:"clients"`          // hosts that have it mounted, as they reported last
	VMs     int                 `json:"vms"`              // of jobs, behind them
	// Hosts are those of the clients that the caller may see.
	Hosts []FileSystemHost     `json:"hosts,omitempty"`
	Drain *api.FileSystemDrain `json:"drain,omitempty"`
}

// FileSystemHost is a client of a file system.
type FileSystemHost struct {
	Host    string `json:"host"`
	VMs     int    `json:"vms"`
	Drained bool   `json:"drained,omitempty"` // its agent keeps the drain
}

// FileSystemOrder drains a file system.
type FileSystemOrder struct {
	Deadline *time.Time `json:"deadline,omitempty" doc:"VMs that still have directories of it are ended; none: never"`
	Until    *time.Time `json:"until,omitempty" doc:"when it should be over: shown to those who wait"`
	Reason   string     `json:"reason,omitempty" maxLength:"200" doc:"shown to those who wait"`
}

// HostFileSystem is a network file system that a host has mounted.
type HostFileSystem struct {
	Source     string   `json:"source"`
	Type       string   `json:"type"`
	MountPoint string   `json:"mount_point"`
	VMs        int      `json:"vms,omitempty"`
	Drains     []string `json:"drains,omitempty"` // by name, that the host keeps
}

// FileSystemClient has the requests about network file systems.
type FileSystemClient struct{ client *Client }

// List returns those that the site declares.
func (c FileSystemClient) List(ctx context.Context) ([]FileSystem, error) {
	items, _, err := all[FileSystem](ctx, c.client, "/v1/file-systems", nil)
	return items, err
}

// Drain keeps VMs from starting with directories of a file system, on all hosts, or changes that.
func (c FileSystemClient) Drain(ctx context.Context, name string, o FileSystemOrder) (FileSystem, error) {
	return call[FileSystem](ctx, c.client, request{method: "POST",
		path: "/v1/file-systems/" + url.PathEscape(name) + "/drain", body: o})
}

// Resume ends the drain of a file system.
func (c FileSystemClient) Resume(ctx context.Context, name string) (FileSystem, error) {
	return call[FileSystem](ctx, c.client, request{method: "POST",
		path: "/v1/file-systems/" + url.PathEscape(name) + "/resume"})
}
