package server

import (
	"context"

	"github.com/grange-project/grange/internal/farm"
	"github.com/grange-project/grange/internal/policy"
)

// Cells are actions on cells.
type Cells struct{ server *Server }

// List returns all cells, by name.
func (cs Cells) List(ctx context.Context, who farm.Identity) (views []CellView, err error) {
	err = cs.server.look(ctx, who, policy.ReadCatalogue, func(c *call) error {
		if err := c.May(policy.Target{}); err != nil {
			return err
		}
		cells, err := c.Tx.Cells()
		if err != nil {
			return err
		}
		views, err = c.showCells(cells)
		return err
	})
	return views, err
}

// Get returns one cell.
func (cs Cells) Get(ctx context.Context, who farm.Identity, name string) (view CellView, err error) {
	err = cs.server.look(ctx, who, policy.ReadCatalogue, func(c *call) error {
		cell, err := c.FindCell(name)
		if err != nil {
			return err
		}
		view, err = c.showCell(cell)
		return err
	})
	return view, err
}

func (c *views) showCell(cell farm.Cell) (CellView, error) {
	views, err := c.showCells([]farm.Cell{cell})
	if err != nil {
		return CellView{}, err
	}
	return views[0], nil
}

// showCells reads all VMs of the farm once.
func (c *views) showCells(cells []farm.Cell) (views []CellView, err error) {
	used, err := c.UsedCells()
	if err != nil {
		return nil, err
	}
	for _, cell := range cells {
		v := CellView{Cell: cell, Used: used[cell.Name]}
		v.VMs = v.Used.VMs
		if v.Hosts, err = c.CountHosts(cell.Name); err != nil {
			return nil, err
		}
		views = append(views, v)
	}
	return views, nil
}

// Close keeps new VMs off a cell. All else goes on.
func (cs Cells) Close(ctx context.Context, who farm.Identity, name string, ifRevision int64,
	reason string) (CellView, error) {
	return cs.alter(ctx, who, policy.CloseCell, name, ifRevision, func(_ *call, cell *farm.Cell) (string, error) {
		cell.Closed, cell.Reason = true, reason
		return reason, checkReason(reason)
	})
}

// Open ends the drain and the closing of a cell. Hosts that were closed by themselves stay closed.
func (cs Cells) Open(ctx context.Context, who farm.Identity, name string, ifRevision int64) (CellView, error) {
	return cs.alter(ctx, who, policy.OpenCell, name, ifRevision, func(_ *call, cell *farm.Cell) (string, error) {
		cell.Closed, cell.Reason, cell.Drain = false, "", farm.Drain{}
		return "", nil
	})
}

// Drain keeps new VMs off a cell and, at the deadline, stops those that are left.
func (cs Cells) Drain(ctx context.Context, who farm.Identity, name string, ifRevision int64,
	d DrainOrder) (CellView, error) {
	return cs.alter(ctx, who, policy.DrainCell, name, ifRevision, func(c *call, cell *farm.Cell) (string, error) {
		var err error
		cell.Drain, err = c.drain(cell.Drain, d)
		return d.said(), err
	})
}

func (cs Cells) alter(ctx context.Context, who farm.Identity, a policy.Action, name string, ifRevision int64,
	do func(*call, *farm.Cell) (string, error)) (view CellView, err error) {
	var cell farm.Cell
	revision, err := cs.server.change(ctx, who, a, func(c *call) (err error) {
		if cell, err = c.FindCell(name); err != nil {
			return err
		}
		if err := c.Still("cell "+name, c.Target, cell.Revision, ifRevision); err != nil {
			return err
		}
		said, err := do(c, &cell)
		if err != nil {
			return err
		}
		if err := c.PutCell(cell); err != nil {
			return err
		}
		return c.Did(said)
	})
	if err != nil {
		return view, err
	}
	err = cs.server.look(ctx, who, policy.ReadCatalogue, func(c *call) error {
		view, err = c.showCell(cell)
		return err
	})
	view.Revision = revision
	return view, err
}
