package main

import "fmt"

// forgedTests send each kind of forged frame twice: without a filter it must arrive, or the case would show nothing;
// with one it must arrive at neither the neighbour nor the uplink.
func forgedTests() (all []test) {
	for _, c := range forgeries {
		all = append(all, test{"forged " + c.name, func(l *lab, f *figures) error {
			return l.between(func(a, b *guest) error {
				frames := c.frames(a.station, b.station)
				n, lost, err := carried(a, frames, b)
				if err != nil || n != len(frames) {
					return fmt.Errorf("without filters %d of %d frames arrive, not %v: %w", n, len(frames), lost, err)
				}
				if err := l.fence(a); err != nil {
					return err
				}
				if n, _, err = carried(a, frames, b, l.uplink); err != nil {
					return err
				}
				f.Frames += len(frames)
				f.Spoofed += n
				if n > 0 {
					return fmt.Errorf("%d of %d frames arrive: %w", n, len(frames), l.which(a, b, frames))
				}
				return l.honestly(a, b)
			})
		}})
	}
	return all
}

// which names the frames that arrive, one by one.
func (l *lab) which(a, b *guest, frames [][]byte) error {
	var all []int
	for i := range frames {
		if n, _, err := carried(a, frames[i:i+1], b, l.uplink); err != nil || n > 0 {
			all = append(all, i)
		}
	}
	return fmt.Errorf("those with the numbers %v", all)
}

// honestly wants one honest frame to arrive: a filter that lets nothing pass would pass every case.
func (l *lab) honestly(a, b *guest) error {
	frames := [][]byte{eth(nil, a.mac, typeARP, arp(1, a.mac, a.ip4, nil, b.ip4))}
	if n, _, err := carried(a, frames, b); err != nil || n != 1 {
		return fmt.Errorf("an honest frame does not arrive: %w", err)
	}
	return nil
}

// between runs a case with two raw guests on the bridge, unfiltered. The bridge knows where they are.
func (l *lab) between(run func(a, b *guest) error) error {
	a, err := l.raw()
	if err != nil {
		return err
	}
	b, err := l.raw()
	if err != nil {
		a.kill()
		return err
	}
	err = run(a, b)
	if ended := l.end(a, b); err == nil {
		err = ended
	}
	return err
}

// honestTests want what is honest to arrive, all of it.
func honestTests() (all []test) {
	for _, c := range honest {
		all = append(all, test{"honest " + c.name, func(l *lab, _ *figures) error {
			return l.between(func(a, b *guest) error {
				if err := l.fence(a); err != nil {
					return err
				}
				if err := l.fence(b); err != nil {
					return err
				}
				frames := c.frames(a.station, b.station)
				if n, lost, err := carried(a, frames, b); err != nil || n != len(frames) {
					return fmt.Errorf("%d of %d frames arrive, not %v: %w", n, len(frames), lost, err)
				}
				return nil
			})
		}})
	}
	return all
}
