package apiserver

import (
	"context"

	"github.com/grange-project/grange/api/fleet"
	"github.com/grange-project/grange/internal/farm"
)

// FileSystemRef names a file system in a path.
type FileSystemRef struct {
	FileSystem string `path:"file_system" maxLength:"100" example:"projects"`
}

func answerFileSystem(f fleet.FileSystem, err error) (*one[fleet.FileSystem], error) {
	if err != nil {
		return nil, err
	}
	return oneOf(f, 0), nil
}

func (a *API) fileSystemRoutes() {
	same := func(f fleet.FileSystem) fleet.FileSystem { return f }
	handle(a, route{method: "GET", path: "/v1/file-systems", id: "list-file-systems", whole: true, tag: "file systems",
		summary: "List the network file systems that the site declares, with their clients"},
		func(ctx context.Context, who farm.Identity, in *struct{ Paging }) (*one[fleet.Page[fleet.FileSystem]], error) {
			return listOf(ctx, a, in.Paging, same, func(f fleet.FileSystem) string { return f.Name },
				func() ([]fleet.FileSystem, error) { return a.server.FileSystems.List(ctx, who) })
		})
	handle(a, route{method: "POST", path: "/v1/file-systems/{file_system}/drain", id: "drain-file-system",
		tag: "file systems", summary: "Keep virtual machines from starting with directories of a file system",
		about: "Those of jobs, on all hosts. At the deadline, those that still have directories of it are ended. " +
			"Draining again changes deadline and reason."},
		func(ctx context.Context, who farm.Identity, in *struct {
			FileSystemRef
			Body fleet.FileSystemOrder
		}) (*one[fleet.FileSystem], error) {
			return answerFileSystem(a.server.FileSystems.Drain(ctx, who, in.FileSystem, in.Body))
		})
	handle(a, route{method: "POST", path: "/v1/file-systems/{file_system}/resume", id: "resume-file-system",
		tag: "file systems", summary: "End the drain of a file system"},
		func(ctx context.Context, who farm.Identity, in *struct{ FileSystemRef }) (*one[fleet.FileSystem], error) {
			return answerFileSystem(a.server.FileSystems.Resume(ctx, who, in.FileSystem))
		})
}
