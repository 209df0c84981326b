"""What touches the outside world for the other packages: settings, Temporal, database, telemetry."""
