package server

import (
	"context"

	"github.com/grange-project/grange/internal/farm"
)

// brokerOf tells what the batch system of a host's cell makes of its closing.
func (c *call) brokerOf(v *HostView, cell farm.Cell) error { return nil }

func (s *Server) brokers(ctx context.Context, epoch int64) error { return nil }

// book has the batch system of a cell give a VM its place. The placer tells it of VMs without a host whose cell is not placed by grange, and
// may tell it again.
func (s *Server) book(ctx context.Context, epoch int64, vm farm.VM, cell string) error { return nil }
