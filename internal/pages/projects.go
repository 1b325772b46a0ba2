package pages

import (
	"net/url"
	"strings"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/server"
)

// projectRow is a project, with what it may have and has.
type projectRow struct {
	Name, Path string
	Gauges     []gauge
	Rules      []string // what its VMs are held to
	Cells      string   // where new ones may go
	Nowhere    string   // why there is none
}

func listProjects(v *visit) error {
	all, err := v.Server.Projects(v.ctx(), v.who)
	if err != nil {
		return err
	}
	rows := make([]projectRow, 0, len(all))
	for _, p := range all {
		rows = append(rows, projectRowOf(p))
	}
	return v.show("projects", "Projects", "projects", rows)
}

func projectRowOf(p server.ProjectView) projectRow {
	row := projectRow{Name: p.Name, Path: "/vms?of=all&project=" + url.QueryEscape(p.Name),
		Gauges: quotaGauges(p.Quota, p.Used, farm.Quota{}), Cells: strings.Join(p.Cells, ", "), Nowhere: p.Nowhere}
	held := func(what string, names []string) {
		if len(names) > 0 {
			row.Rules = append(row.Rules, what+" "+strings.Join(names, ", "))
		}
	}
	held("networks", p.Networks)
	held("shapes", p.Shapes)
	held("images", p.Images)
	if p.MaxAge > 0 {
		row.Rules = append(row.Rules, "VMs without a date to expire last "+span(p.MaxAge))
	}
	if p.SecurityGroups {
		row.Rules = append(row.Rules, "security group default, unless a VM names others")
	}
	return row
}
