mod by_real_agents;
