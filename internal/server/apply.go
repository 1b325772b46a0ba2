package server

import (
	"context"

	"github.com/grange-project/grange/internal/farm"
)

// ApplyOrder says how a farm file is brought.
type ApplyOrder struct {
	DryRun bool   // tell what would be done, and do nothing
	Prune  bool   // delete what the file lacks, of the kinds that it has
	Plan   string // Applied.Plan of a dry run that somebody looked at: anything else is refused with farm.CodeOtherPlan; "": no comparison
}

// Applied is what an apply did, or would do.
type Applied struct {
	Changes  []FarmChange
	Effects  []string // what changes for whom, in sentences
	Plan     string   // stands for Changes
	Revision int64    // of the store; 0 of a dry run
}

// FarmChange is one object that is made, changed or deleted.
type FarmChange struct {
	Op      string   // "create", "change", "delete"
	Kind    string   // "cell", "project", "shape", "network", "group", "user", "grant", "settings"
	Name    string   // "project/name" of a group, "ann operator project:atlas" of a grant
	Details []string // key by key: "packing: pack → spread"
}

// Apply makes the farm as f says, in one transaction, or tells what that would change. An object that something else needs is not deleted:
// farm.CodeInUse.
func (s *Server) Apply(ctx context.Context, who farm.Identity, f farm.Farm, o ApplyOrder) (Applied, error) {
	return Applied{}, errLater
}

// Export is the farm as it is, for Apply.
func (s *Server) Export(ctx context.Context, who farm.Identity) (farm.Farm, error) {
	return farm.Farm{}, errLater
}

// ProjectView is a project as people see it.
type ProjectView struct {
	farm.Project
	Used    farm.Quota
	Cells   []string // where its new VMs may go now
	Nowhere string   // why there is none; "": there is one
}

// Projects are those that the caller may see.
func (s *Server) Projects(ctx context.Context, who farm.Identity) ([]ProjectView, error) {
	return nil, errLater
}

// Project is one project.
func (s *Server) Project(ctx context.Context, who farm.Identity, name string) (ProjectView, error) {
	return ProjectView{}, errLater
}

// Shapes are all shapes.
func (s *Server) Shapes(ctx context.Context, who farm.Identity) ([]farm.Shape, error) {
	return nil, errLater
}

// Networks are all networks.
func (s *Server) Networks(ctx context.Context, who farm.Identity) ([]farm.FleetNetwork, error) {
	return nil, errLater
}
