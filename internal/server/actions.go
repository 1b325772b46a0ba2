package server

import (
	"context"
	"io"

	"github.com/grange-project/grange/internal/farm"
)

// Every action decides by policy who may do it and leaves an entry in the audit log, also of what it refused. A VM is named by its ID or
// as "project/name", a host by its name or ID. ifRevision is the revision that the caller has seen; 0 asks for no comparison. Errors
// are farm.Error.

// CreateVMs makes VMs, all or none. They have no host yet when it returns.
func (s *Server) CreateVMs(ctx context.Context, who farm.Identity, c CreateVM) (Created, error) {
	return Created{}, errLater
}

// VM is one VM.
func (s *Server) VM(ctx context.Context, who farm.Identity, vm string) (VMView, error) {
	return VMView{}, errLater
}

// VMs are those that the filter chooses and the caller may see, in the order of "project/name".
func (s *Server) VMs(ctx context.Context, who farm.Identity, f VMFilter) (VMList, error) {
	return VMList{}, errLater
}

// UpdateVM changes what needs no host.
func (s *Server) UpdateVM(ctx context.Context, who farm.Identity, vm string, ifRevision int64, u UpdateVM) (VMView, error) {
	return VMView{}, errLater
}

// StartVM wants it on.
func (s *Server) StartVM(ctx context.Context, who farm.Identity, vm string, ifRevision int64) (VMView, error) {
	return VMView{}, errLater
}

// StopVM wants it off. Its disks and its place stay.
func (s *Server) StopVM(ctx context.Context, who farm.Identity, vm string, ifRevision int64) (VMView, error) {
	return VMView{}, errLater
}

// RestartVM has it boot once more.
func (s *Server) RestartVM(ctx context.Context, who farm.Identity, vm string, ifRevision int64) (VMView, error) {
	return VMView{}, errLater
}

// ResizeVM gives it another size, on its own host.
func (s *Server) ResizeVM(ctx context.Context, who farm.Identity, vm string, ifRevision int64, r ResizeVM) (VMView, error) {
	return VMView{}, errLater
}

// RebuildVM makes it anew from an image with fresh disks; "": from the image that it has.
func (s *Server) RebuildVM(ctx context.Context, who farm.Identity, vm string, ifRevision int64, image string) (VMView, error) {
	return VMView{}, errLater
}

// DeleteVM wants nothing of it to stay. It is gone when its host has said so.
func (s *Server) DeleteVM(ctx context.Context, who farm.Identity, vm string, ifRevision int64) (VMView, error) {
	return VMView{}, errLater
}

// PutGroup makes or changes a server group.
func (s *Server) PutGroup(ctx context.Context, who farm.Identity, g farm.ServerGroup) (GroupView, error) {
	return GroupView{}, errLater
}

// Groups are the server groups of a project; "": of all that the caller may see.
func (s *Server) Groups(ctx context.Context, who farm.Identity, project string) ([]GroupView, error) {
	return nil, errLater
}

// DeleteGroup removes a group without VMs.
func (s *Server) DeleteGroup(ctx context.Context, who farm.Identity, project, name string) error {
	return errLater
}

// Hosts are those that the filter chooses, in the order of their names.
func (s *Server) Hosts(ctx context.Context, who farm.Identity, f HostFilter) ([]HostView, error) {
	return nil, errLater
}

// Host is one host.
func (s *Server) Host(ctx context.Context, who farm.Identity, host string) (HostView, error) {
	return HostView{}, errLater
}

// DrainHosts keeps new VMs off hosts and, at the deadline, stops those that are left.
func (s *Server) DrainHosts(ctx context.Context, who farm.Identity, patterns []string, d DrainOrder) ([]HostView, error) {
	return nil, errLater
}

// CloseHosts keeps new VMs off hosts.
func (s *Server) CloseHosts(ctx context.Context, who farm.Identity, patterns []string, reason string) ([]HostView, error) {
	return nil, errLater
}

// OpenHosts ends drains and closings.
func (s *Server) OpenHosts(ctx context.Context, who farm.Identity, patterns []string) ([]HostView, error) {
	return nil, errLater
}

// LabelHosts changes labels.
func (s *Server) LabelHosts(ctx context.Context, who farm.Identity, patterns []string, l LabelOrder) ([]HostView, error) {
	return nil, errLater
}

// FenceHost takes the caller's word that nothing of a host runs any more: its VMs are lost.
func (s *Server) FenceHost(ctx context.Context, who farm.Identity, host, reason string) (HostView, error) {
	return HostView{}, errLater
}

// ForgetHost removes a host that has no VMs; its certificate counts no more.
func (s *Server) ForgetHost(ctx context.Context, who farm.Identity, host string) error {
	return errLater
}

// Cells are all cells.
func (s *Server) Cells(ctx context.Context, who farm.Identity) ([]CellView, error) {
	return nil, errLater
}

// Cell is one cell.
func (s *Server) Cell(ctx context.Context, who farm.Identity, cell string) (CellView, error) {
	return CellView{}, errLater
}

// DrainCell drains a cell with all its hosts.
func (s *Server) DrainCell(ctx context.Context, who farm.Identity, cell string, d DrainOrder) (CellView, error) {
	return CellView{}, errLater
}

// CloseCell keeps new VMs off a cell.
func (s *Server) CloseCell(ctx context.Context, who farm.Identity, cell, reason string) (CellView, error) {
	return CellView{}, errLater
}

// OpenCell ends the drain and the closing of a cell.
func (s *Server) OpenCell(ctx context.Context, who farm.Identity, cell string) (CellView, error) {
	return CellView{}, errLater
}

// Entries are lines of the audit log that the caller may see, newest first.
func (s *Server) Entries(ctx context.Context, who farm.Identity, f EntryFilter) ([]farm.Entry, error) {
	return nil, errLater
}

// Watch waits until something changed after a revision that the caller may see, or ctx ends. Watch again from upTo.
func (s *Server) Watch(ctx context.Context, who farm.Identity, after int64) (changes []Watched, upTo int64, err error) {
	return nil, 0, errLater
}

// OpenStream connects to a VM: fleet.StreamConsole, or fleet.StreamTCP with a port. The caller closes it.
func (s *Server) OpenStream(ctx context.Context, who farm.Identity, vm, kind string, port int) (io.ReadWriteCloser, error) {
	return nil, errLater
}

// BringStream hands over a host's end of a stream that OpenStream waits for on this server, and returns when the stream is over. The host
// must be the one that was asked.
func (s *Server) BringStream(host, id string, conn io.ReadWriteCloser) error {
	return errLater
}
