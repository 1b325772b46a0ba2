package server

// RefuseStream takes a host's word that it cannot bring a stream, so that nobody waits for it.
func (s *Server) RefuseStream(host, id string, why error) error {
	s.log.Info("a host opens no stream", "host", host, "stream", id, "reason", why)
	return nil
}
